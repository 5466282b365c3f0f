package oncebox

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/outbox"
)

// checkRetention logs a warning if a message can come again after the inbox has forgotten it: it would be
// handled twice. This is only a warning, because messages come so late only if somebody replays them or
// resets a subscription. How long a message may stay unacknowledged does not matter, because the inbox
// remembers it from the moment it is handled.
func (a *App) checkRetention(ctx context.Context) {
	remembered := cmp.Or(a.cfg.Inbox.Retention, inbox.DefaultRetention)
	if remembered == inbox.KeepForever || len(a.Inbox.Subscriptions()) == 0 {
		return
	}
	warn := func(what string, kept time.Duration, args ...any) {
		if kept > remembered || kept == -1 {
			a.log.WarnContext(ctx, "oncebox: messages can be replayed after the inbox has forgotten them, and are then handled twice: raise "+
				"ONCEBOX_INBOX_RETENTION above kept, or replay nothing that is older than remembered",
				append([]any{"remembered", remembered, "kept_by", what, "kept", keptFor(kept)}, args...)...)
		}
	}
	warn("outbox", cmp.Or(a.cfg.Outbox.Retention, outbox.DefaultRetention))
	k, ok := a.broker.(messaging.RetentionReader)
	if !ok {
		return
	}
	asked := map[string]bool{}
	for _, s := range a.Inbox.Subscriptions() {
		topic := s.Topic
		if asked[topic] {
			continue
		}
		asked[topic] = true
		kept, err := k.Retention(ctx, topic)
		switch {
		case err == nil:
			warn("topic", kept, "topic", topic)
		case !errors.Is(err, errors.ErrUnsupported) && ctx.Err() == nil:
			a.log.InfoContext(ctx, "oncebox: the retention of a topic could not be read, so it was not compared with that of the "+
				"inbox", "topic", topic, "error", err)
		}
	}
}

func keptFor(d time.Duration) string {
	if d == -1 {
		return "for ever"
	}
	return d.String()
}
