package diagnosis

import "context"

// UseReader is a broker that knows whether a topic is in use. [oncebox.App] and the command doctor report topics of consumers that are not: no message
// comes if the service that publishes has another name for the topic.
//
// [oncebox.App]: https://pkg.go.dev/github.com/oncebox/oncebox#App
type UseReader interface {
	// Unused reports whether nobody has ever published to the topic, and nobody is connected to publish to it, as far as the broker knows. A message
	// that was published and deleted counts as long as the broker knows of it. Unused is true for a topic that does not exist, and does not make it. An
	// error means that the broker did not answer; it is errors.ErrUnsupported if the broker cannot know.
	Unused(ctx context.Context, topic string) (bool, error)
}
