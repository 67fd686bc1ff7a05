"""Pods that wait for longer than they may to be started."""
