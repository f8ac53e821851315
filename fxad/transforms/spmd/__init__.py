"""Programs on several devices.

split            a named axis split in two: one for devices, and one for the indices of a device
communication    the bytes that the collectives of a program communicate
"""
