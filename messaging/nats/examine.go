package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/messaging/diagnosis"
)

var _ diagnosis.Examiner = (*Broker)(nil)

// examineTimeout is how long an examination takes at most.
const examineTimeout = 25 * time.Second

// Examine implements [diagnosis.Examiner]. It finds settings of NATS that lose messages or store copies: a limit that drops messages which
// nobody has received, a stream in memory or with one replica in a cluster, a window for duplicates that is too short, messages that are about to
// become too old, and consumers that the server deletes or stops. How often the server writes its files to the disk (sync_interval) is not visible to clients.
func (b *Broker) Examine(ctx context.Context, e diagnosis.Examination) ([]diagnosis.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	reach, done := context.WithTimeout(ctx, b.cfg.OperationTimeout)
	defer done()
	err := b.start.Wait(reach, "examine")
	if err == nil {
		_, err = b.session.Wait(reach)
	}
	if err != nil {
		return []diagnosis.Finding{diagnosis.Find(diagnosis.Connection, diagnosis.Problem, "start the server, or correct ONCEBOX_NATS_URL", "%v", err)}, nil
	}
	topics := e.Topics
	if topics == nil {
		if topics, err = b.keeper.Topics(ctx); err != nil {
			return nil, fmt.Errorf("nats: examine: list the streams: %w", err)
		}
	}
	var found []diagnosis.Finding
	var read []diagnosis.Topic
	var errs []error
	for _, topic := range topics {
		more, state, err := b.keeper.Examine(ctx, topic, b.cfg.PublishTimeout)
		found = append(found, more...)
		if err != nil {
			errs = append(errs, fmt.Errorf("nats: examine topic %q: %w", topic, err))
		} else if state != nil {
			read = append(read, *state)
		}
	}
	same, err := e.Compare(ctx, read)
	return append(found, same...), errors.Join(append(errs, err)...)
}
