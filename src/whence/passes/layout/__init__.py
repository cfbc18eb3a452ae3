"""The order of axes: channels first, last or blocked; transposes and reshapes between."""
