package inbox

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// lastBeat returns how many seconds ago a process last ran RunParked for a consumer; no row: never.
const lastBeat = `SELECT extract(epoch FROM clock_timestamp() - beat_at)::float8 FROM {schema}.inbox_consumer WHERE consumer = $1::text AND beat_at IS NOT NULL`

const (
	// unattendedAfter is how long ago that may be. Processes that run RunParked note it every minute.
	unattendedAfter = 3 * time.Minute
	// askedEvery is how often a process reads lastBeat, for each consumer whose messages it parks.
	askedEvery = time.Minute
)

// tellIfUnattended logs an error if messages are parked and no process handles them: [Inbox.RunParked] runs nowhere, so these messages, and
// all messages that are parked behind them, wait for ever.
func (w *wrapped) tellIfUnattended(ctx context.Context) {
	if w.box.runners.Load() > 0 || !w.box.askAgain(w.consumer) {
		return
	}
	var since float64
	err := w.box.store.SQL.QueryRow(ctx, w.box.store.DB(ctx), lastBeat, []any{w.consumer}, &since)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		w.box.store.Log.ErrorContext(ctx, "oncebox: messages are parked, and no process handles what is parked: they wait for ever. Have Inbox.Run run "+
			"(or Inbox.RunParked beside a consumer of your own), in a process that has this consumer", "consumer", w.consumer)
	case err == nil && seconds(since) > unattendedAfter:
		w.box.store.Log.ErrorContext(ctx, "oncebox: messages are parked, and no process has handled what is parked for a while: have Inbox.Run run "+
			"(or Inbox.RunParked beside a consumer of your own), in a process that has this consumer", "consumer", w.consumer, "last", seconds(since))
	}
}

// askAgain reports whether it is time to read lastBeat of a consumer.
func (i *Inbox) askAgain(consumer string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if last, asked := i.asked[consumer]; asked && time.Since(last) < askedEvery {
		return false
	}
	i.asked[consumer] = time.Now()
	return true
}
