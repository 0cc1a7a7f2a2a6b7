"""What flows from inputs to outputs: the rules by which rows are judged, and looks inside the model."""
