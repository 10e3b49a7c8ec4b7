"""What a config takes on a TPU that is not here: programs compiled ahead of time, their memory, and a roofline of their time."""
