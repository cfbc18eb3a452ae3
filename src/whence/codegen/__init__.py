"""From kernel programs to native code."""
