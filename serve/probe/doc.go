// Package probe answers the questions of an orchestrator: is the process alive, and is it ready.
//
// # Guarantees
//
// The answers name no hosts and no users, because probes may come from anybody. The log has the reason, and repeats it every ten seconds at most.
//
// Read first: probe.go:Ready.
package probe
