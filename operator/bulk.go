package operator

// Bulk controls how many dead letters, or failed messages, are treated at once. A nil Bulk is the zero value.
type Bulk struct {
	// BatchSize is how many are treated in one transaction. Their keys are locked until it ends. Default: 500 in the
	// outbox, 100 in the inbox.
	BatchSize int
	// DryRun counts what the filter selects and changes nothing. Default: false.
	DryRun bool
	// Rate is how many are treated per second at most, so that the service is not flooded. The call returns only when
	// the next one may begin. Default: 0, without a limit.
	Rate float64
	// Progress is called after each batch with the number treated so far. Default: none.
	Progress func(done int64)
}
