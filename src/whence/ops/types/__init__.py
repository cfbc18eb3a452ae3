"""The types of an operator's outputs, from those of its inputs."""
