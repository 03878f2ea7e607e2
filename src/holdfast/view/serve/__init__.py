"""A local server that shows the runs of a folder, live while they train."""

from holdfast.view.serve.server import RunServer, serve
