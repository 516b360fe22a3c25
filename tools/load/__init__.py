"""The load test: a real server under many clients, each answer compared with its lone one."""
