"""Static buffers, captured graphs and the decision between graph and eager."""
