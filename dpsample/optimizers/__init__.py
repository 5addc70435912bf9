"""Private optimizers: recipes over one compiled gradient loop."""
