"""From the log to tables, in PySpark.

    log --source--> bronze --payloads--> silver --jobs--> gold

`source` is the data source `holdfast`; `payloads` knows what messages say; `jobs` are functions
from DataFrame to DataFrame with the tables that they make; `load` writes tables so that writing
again changes nothing; `running` joins them. The pipeline reads what the broker publishes (the read
interface) and knows nothing of its insides.
"""
