//go:build race

package pulsar

// raced leaves out the tests in which a producer of the client reconnects while another goroutine sends: it sets its name and
// schema again meanwhile. They are the same as before, but the race detector reports it. Both runs of the
// tests have a step without it for these: internal/suite/step.go.
const raced = true
