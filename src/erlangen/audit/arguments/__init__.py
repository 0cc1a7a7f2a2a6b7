"""What each argument of a model is: content, masks, lengths, labels; which of its axes is which."""
