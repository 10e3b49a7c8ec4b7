"""One program on any number of devices and hosts: meshes, where every array lies on them, and what hosts tell each other."""
