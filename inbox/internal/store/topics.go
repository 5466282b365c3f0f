package store

import "time"

// ReportInterval is how often a process stores the report about its consumers.
const ReportInterval = 20 * time.Second

// TopicsOfKeys lists the topics of waiting keys, for each consumer of $1. It reads one entry of the index for each topic, however many keys
// wait.
const TopicsOfKeys = `
WITH RECURSIVE seen (consumer, topic) AS (
	SELECT c, (SELECT min(k.topic) FROM {schema}.inbox_key k WHERE k.consumer = c AND k.state <> 'DEAD') FROM unnest($1::text[]) c
	UNION ALL SELECT s.consumer, (
		SELECT min(k.topic) FROM {schema}.inbox_key k WHERE k.consumer = s.consumer AND k.state <> 'DEAD' AND k.topic > s.topic)
	FROM seen s WHERE s.topic IS NOT NULL
)`
