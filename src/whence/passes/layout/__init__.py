"""The order of axes: channels first, channels last, channel-blocked; transposes and reshapes
between.
"""
