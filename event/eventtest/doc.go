// Package eventtest keeps a service from changing events that are stored already. It is one test:
//
//	func TestEvents(t *testing.T) {
//		registry := event.NewRegistry()
//		registerEvents(registry)
//		eventtest.Golden(t, registry)
//	}
//
// For every type and version there is a file with the payload of a sample, testdata/events/<type>.v<version>.json (.golden if
// the codec is not JSON), which is committed and stays. A new one is written with
//
//	EVENTTEST_UPDATE=1 go test ./...
//
// That writes what is missing and what was added, and never touches anything else: the gate cannot be silenced by it.
//
// # What fails
//
//   - a type whose current version has no file
//   - a file that is gone, or whose type is not registered any more, under its name or as an alias of another one
//   - a field that was removed, renamed or retyped: what the file of the current version holds is not written again as it was
//   - a field that was added and is not in the file yet
//   - an earlier version that does not decode, that loses a field on the way because an upcaster was forgotten, or whose
//     integers an upcaster rounds to what a float64 can hold
//
// Each message says what to do. JSON is compared member by member and number by number, every digit of them; the order of the
// members does not matter. What other codecs write is compared byte by byte.
//
// Read first: golden.go:Golden.
package eventtest
