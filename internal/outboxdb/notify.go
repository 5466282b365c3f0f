package outboxdb

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/pgerr"
)

const (
	// notifyGap is the least time between two NOTIFYs of a store, and so the longest that a commit waits for its own.
	notifyGap = 2 * time.Millisecond
	// notifyTimeout bounds a NOTIFY, a connection of the pool included. A NOTIFY that takes longer comes no earlier than a poll.
	notifyTimeout = time.Second
	// notifyComplaint is the number of failures in a row that is logged. One failure is not logged, because polling
	// makes up for it. A failure while the process closes its pool is expected.
	notifyComplaint = 3
)

// channelOf is the channel of the store whose oncebox_settings is read: one per schema, whether the schema is given or found
// through the search_path. The table has one row.
const channelOf = `'oncebox_outbox_' || tableoid`

// notify is sent in a transaction of its own. In the business transaction it would take a lock that all notifying
// transactions of the server share, from before the COMMIT record is written until it is safely on disk: they would
// commit one after the other. Of its own it writes nothing that has to reach the disk.
const notify = `SELECT pg_notify(` + channelOf + `, $1) FROM {schema}.oncebox_settings`

// notifier sends a NOTIFY at once, and at most one per notifyGap. Its goroutine lives while there is something to send:
// a store has no end, so nothing could stop one.
type notifier struct {
	send func(ctx context.Context, lanes LaneSet) error
	log  *slog.Logger

	mu      sync.Mutex
	running bool
	next    LaneSet // lanes in which a transaction has committed since the last NOTIFY began

	failures int // in a row; belongs to the goroutine
}

// tell makes the notifier send a NOTIFY soon. It never waits.
func (n *notifier) tell(lanes LaneSet) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.running {
		n.next |= lanes
		return
	}
	n.running = true
	go n.run(lanes)
}

// run sends until a gap passes without a call of tell. A call that comes while a NOTIFY is on its way gets another
// NOTIFY: the listeners may have looked already, before the rows of that call were committed.
func (n *notifier) run(lanes LaneSet) {
	for {
		gap := time.NewTimer(notifyGap)
		ctx, cancel := context.WithTimeout(context.Background(), notifyTimeout)
		err := n.send(ctx, lanes)
		cancel()
		if err == nil {
			n.failures = 0
		} else if n.failures++; n.failures == notifyComplaint {
			n.log.Warn("oncebox: relays of other processes could not be notified of new events; they find them when they poll", "error", err)
		}
		<-gap.C
		if lanes = n.more(); lanes == 0 {
			return
		}
	}
}

// more returns the lanes of the next NOTIFY; none: the goroutine ends. It decides under the lock, so a call of tell
// either is seen here or starts a new goroutine.
func (n *notifier) more() LaneSet {
	n.mu.Lock()
	defer n.mu.Unlock()
	lanes := n.next
	n.running, n.next = lanes != 0, 0
	return lanes
}

// LanesFreed is the payload of a NOTIFY after lanes were handed back, or after a tenant was paused or resumed.
// Without it projectors find that at their next renewal. The payload after a commit has another form: "store lanes",
// with the id of the store and the set of lanes.
const LanesFreed = "lanes"

// Notify sends a payload to the stores of other processes.
func (h *Handle) Notify(ctx context.Context, payload string) error {
	if _, err := h.Run.Exec(ctx, h.DB, notify, payload); err != nil {
		return fmt.Errorf("outbox: notify: %w", pgerr.Explain(err))
	}
	return nil
}

// Wake notifies relays that there may be new rows in the lanes: relays of this process by [Handle.OnWake], and relays
// of other processes by NOTIFY.
func (h *Handle) Wake(lanes LaneSet) {
	h.mu.Lock()
	wakers := h.wakers
	h.mu.Unlock()
	for _, wake := range wakers {
		(*wake)(lanes)
	}
	if !h.PollOnly {
		h.notifier.tell(lanes)
	}
}

// OnWake registers fn: every Wake calls it with the lanes that may have new rows, until forget is called. fn must not
// block.
func (h *Handle) OnWake(fn func(LaneSet)) (forget func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	waker := &fn
	// A new slice each time: Wake calls the old one without the lock.
	h.wakers = append(slices.Clip(h.wakers), waker)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.wakers = slices.DeleteFunc(slices.Clone(h.wakers), func(w *func(LaneSet)) bool { return w == waker })
	}
}
