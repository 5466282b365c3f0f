//go:build race

package pulsar

// raced leaves out the tests in which a producer of the client reconnects while another goroutine sends: it sets its name and
// schema again meanwhile. They are the same as before, but the race detector reports it. So this package is tested without it in make
// test, and both with and without it in make nightly.
const raced = true
