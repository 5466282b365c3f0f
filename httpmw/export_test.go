package httpmw

// TakesKey reports whether a line is an Idempotency-Key that the middleware takes.
func TakesKey(cfg *IdempotencyConfig, line string) bool {
	c := cfg.WithDefaults()
	_, reason := keyRule{c.StrictKey, c.MinKey}.parse([]string{line})
	return reason == ""
}
