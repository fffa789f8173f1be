"""Running agents on tasks: `evaluate`, plans, the lockstep runner, workers, callbacks and progress.

Agents, suites or tasks become a plan, a plan becomes jobs (one block of replicates of one task),
and the runner plays each job's agents on the same customers, here, on several cores or a cluster.
"""
