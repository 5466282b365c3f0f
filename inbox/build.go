package inbox

import (
	"context"
	"errors"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/envelope"
	"github.com/oncebox/oncebox/messaging"
)

// needsBuild reports whether this build of the program does not know the message yet, so that trying again helps once a later build is
// deployed. During a deployment old processes receive messages that only new ones know. It is false for an event that the handler could not
// emit, which is a fault of this build, and for an error that the handler marked as permanent.
func needsBuild(err error) bool {
	if messaging.IsPermanent(err) || envelope.IsOutgoing(err) {
		return false
	}
	return errors.Is(err, event.ErrNewerVersion) || errors.Is(err, event.ErrUnknownType) || errors.Is(err, messaging.ErrNoHandler)
}

// logged identifies a line of the log that is written once.
type logged struct {
	consumer, topic, eventType string
	version                    int
}

// maxLogged is how many lines are remembered. It needs a bound, because senders may invent any number of types.
const maxLogged = 1000

// first reports whether a line has not been written yet, as far as is remembered, and remembers it.
func (i *Inbox) first(line logged) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	_, written := i.logged[line]
	if !written && len(i.logged) < maxLogged {
		i.logged[line] = struct{}{}
	}
	return !written
}

// noteBuild logs that messages wait for a build that knows them: once for each type and version, because such messages may be many.
func (w *wrapped) noteBuild(ctx context.Context, e *event.Envelope, cause error) {
	if w.box.first(logged{consumer: w.consumer, eventType: e.Type, version: e.SchemaVersion}) {
		w.box.store.Log.WarnContext(ctx, "oncebox: messages are parked until a build that knows their type and version is deployed, "+
			"and what is behind them waits",
			"consumer", w.consumer, "topic", e.Topic, "type", e.Type, "version", e.SchemaVersion, "limit", w.retry.DeployWait,
			"id", e.ID, "tenant", e.TenantID, "error", cause)
	}
}

// awaitBuild parks a message that this build does not know. Its tries do not count.
func (w *wrapped) awaitBuild(ctx context.Context, id store.Identity, m *messaging.Message, cause error) error {
	became, err := w.parkFailed(ctx, id, m, 0, w.retry.buildPause(0), cause)
	if err == nil && became != store.Duplicate {
		w.noteBuild(ctx, &m.Envelope, cause)
	}
	return err
}

// awaitBuildHead is awaitBuild for a parked message.
func (w *wrapped) awaitBuildHead(ctx context.Context, k store.ParkedKey, h store.Head, counted store.Count, cause error) error {
	w.noteBuild(ctx, &h.Envelope, cause)
	_, err := w.box.table.Heads.Fail(ctx, k, h, h.Try(counted)-1, w.retry.buildPause(h.Unknown), cause, true)
	return err
}
