//go:build !race

package pulsar

// raced is explained in race_test.go.
const raced = false
