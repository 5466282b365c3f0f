//go:build nightly

package nightly

// On says whether this is a nightly run.
const On = true
