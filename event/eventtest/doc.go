// Package eventtest fails if a service changes its event types so that stored events cannot be read any more. It is one test:
//
//	func TestEvents(t *testing.T) {
//		registry := event.NewRegistry()
//		registerEvents(registry)
//		eventtest.Golden(t, registry)
//	}
//
// For every type and version there is a file with the payload of a sample, testdata/events/<type>.v<version>.json (.golden if the codec is not
// JSON), which is committed and stays. To write a new file, run
//
//	EVENTTEST_UPDATE=1 go test ./...
//
// That writes missing files and adds new fields to existing files. It changes nothing else, so it cannot hide a failure.
//
// # What fails
//
//   - a type whose current version has no file
//   - a file that is gone, or whose type is not registered any more, under its name or as an alias of another one
//   - a field that was removed, renamed or retyped: the file of the current version is decoded and encoded again, and the result differs from the
//     file
//   - a field that was added to the type and is not yet in the file
//   - an earlier version that cannot be decoded, that loses a field because an upcaster is missing, or whose integers an upcaster rounds because
//     it stores them in a float64
//
// Each message says what to do. JSON is compared member by member, and numbers digit by digit; the order of the members does not matter. The
// output of other codecs is compared byte by byte.
//
// Read first: golden.go:Golden.
package eventtest
