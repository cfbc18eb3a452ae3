"""Reading TFLite and Circle files into graphs, and writing graphs as such files."""
