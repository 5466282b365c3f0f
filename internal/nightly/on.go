//go:build nightly

package nightly

// On is true in a nightly run.
const On = true
