"""`/v1/`: OpenAI's Chat Completions protocol in front of the product.

A request becomes a conversation of origin `api`: its messages are rows like any others, its answer a turn that the
worker carries out. So personas, projects, budgets, reports, stops and restarts are those of every other turn. The next
request of the same program is another conversation: what the program remembers is what it sends.
"""
