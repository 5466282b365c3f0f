package oncebox

import (
	"context"
	"errors"
	"time"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/messaging/diagnosis"
)

// unusedAfter is how long a topic of a consumer may have no message after a start before the log says so. The services of an installation start together, and
// the first event comes a little later.
const unusedAfter = time.Minute

// checkUse logs each topic of a consumer to which nobody has ever published. That is no fault in a new installation. But a consumer of a misspelt topic
// looks like a consumer that has nothing to do, and nothing else says that no message will come. It only asks, so it delays nothing.
func checkUse(ctx context.Context, a *App) {
	b, ok := a.broker.(diagnosis.UseReader)
	if !ok || backoff.Wait(ctx, a.unusedAfter) != nil {
		return
	}
	asked := map[string]bool{}
	for _, s := range a.Inbox.Subscriptions() {
		if asked[s.Topic] {
			continue
		}
		asked[s.Topic] = true
		unused, err := b.Unused(ctx, s.Topic)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !errors.Is(err, errors.ErrUnsupported):
			a.log.InfoContext(ctx, "oncebox: the broker does not report whether anybody publishes to a topic", "topic", s.Topic, "error", err)
		case unused:
			a.log.InfoContext(ctx, "oncebox: nobody has published to this topic yet, so its consumers get no message; if messages should be there, "+
				"compare its name and ONCEBOX_TOPIC_PREFIX with those of the service that publishes, or run "+
				"oncebox doctor, which names a topic with a similar name",
				"topic", s.Topic)
		}
	}
}
