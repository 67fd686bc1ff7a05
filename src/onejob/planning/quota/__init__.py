"""Resource limits of a namespace, as in upstream's admission plugins.

LimitRanges apply to each container and Pod, ResourceQuotas to all objects together.
"""
