"""What a model holds, and how it is put back."""
