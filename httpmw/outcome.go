package httpmw

// What became of a request with a key, as the metric counts it.
const (
	outcomeExecuted   = "executed"
	outcomeReleased   = "released"
	outcomeReplayed   = "replayed"
	outcomeInProgress = "in_progress"
	outcomeMismatch   = "mismatch"
	outcomeRefused    = "refused"
	outcomeFailed     = "failed"
	outcomePanicked   = "panicked"
	outcomeUnknown    = "unknown"
	outcomeLost       = "lease_lost"
)

func outcomes() []string {
	return []string{
		outcomeExecuted, outcomeReleased, outcomeReplayed, outcomeInProgress, outcomeMismatch,
		outcomeRefused, outcomeFailed, outcomePanicked, outcomeUnknown, outcomeLost,
	}
}
