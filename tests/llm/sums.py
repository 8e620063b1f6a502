"""An MCP server as a program, to be started by its command."""

SERVER = """
from mcp.server import MCPServer
server = MCPServer("sums")

@server.tool(description="Adds two numbers.")
def add(a: int, b: int) -> str:
    return str(a + b)

@server.tool(description="Multiplies two numbers.")
def multiply(a: int, b: int) -> str:
    return str(a * b)

server.run()
"""
