package doctor

import (
	"cmp"
	"context"
	"time"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/outbox"
)

// settingsChecks need no connection, so they come first and work when everything else fails.
func settingsChecks() []check {
	return []check{
		{"source", (*examination).source},
		{"retention", (*examination).retention},
		{"handler-timeout", (*examination).handlerTimeout},
	}
}

// source finds a service without a name. It is only a warning, because a service that just handles
// messages works without one.
func (e *examination) source(context.Context) ([]Finding, error) {
	if e.Config.UoW.Source != "" {
		return nil, nil
	}
	return []Finding{finding("source", Warning,
		"set ONCEBOX_SOURCE to the name of the service, also for this command if the name is in its code (serve.Service.Source)",
		"ONCEBOX_SOURCE is not set: unless its code names it, the service cannot emit events, and oncebox "+
			"cannot notice a second service that uses one of its consumer names")}, nil
}

// remembered returns how long the inbox remembers a handled message; -1 means for ever.
func (e *examination) remembered() time.Duration {
	return cmp.Or(e.Config.Inbox.Retention, inbox.DefaultRetention)
}

// outlives reports whether messages are kept for longer than the inbox remembers them, so that a repeated
// one would be handled twice.
func (e *examination) outlives(kept time.Duration) bool {
	return e.remembered() != inbox.KeepForever && (kept == -1 || kept > e.remembered())
}

// retention compares the service's own outbox with its inbox. For events of other services the check "broker" looks at
// the retention of their topics.
func (e *examination) retention(context.Context) ([]Finding, error) {
	kept := cmp.Or(e.Config.Outbox.Retention, outbox.DefaultRetention)
	if !e.outlives(kept) {
		return nil, nil
	}
	return []Finding{finding("retention", Warning, "raise ONCEBOX_INBOX_RETENTION above "+length(kept)+", or lower ONCEBOX_OUTBOX_RETENTION",
		"the outbox keeps events for %s, but the inbox remembers messages only for %s: an event that is replayed after that is handled twice", length(kept),
		length(e.remembered()))}, nil
}

// The defaults of config.Config.IdleInTransaction and inbox.Config.HandlerTimeout.
const (
	defaultIdle    = 5 * time.Minute
	defaultHandler = 5 * time.Minute
)

// handlerTimeout finds a handler that may be silent for longer than PostgreSQL keeps an idle session: its transaction
// would be rolled back in the middle.
func (e *examination) handlerTimeout(context.Context) ([]Finding, error) {
	idle, handler := cmp.Or(e.Config.IdleInTransaction, defaultIdle), cmp.Or(e.Config.Inbox.HandlerTimeout, defaultHandler)
	if idle == -1 || handler != -1 && handler <= idle {
		return nil, nil
	}
	return []Finding{finding("handler-timeout", Warning, "raise ONCEBOX_IDLE_IN_TRANSACTION to "+length(handler)+
		", lower ONCEBOX_INBOX_HANDLER_TIMEOUT, or run the handler under a lease (inbox.Leased)",
		"a handler may take %s, but PostgreSQL ends a transaction that sends no statement for %s: the handler's work is rolled back and repeated",
		length(handler), length(idle))}, nil
}

// length writes -1, which stands for no limit, so that it fits behind "for".
func length(d time.Duration) string {
	if d == -1 {
		return "ever"
	}
	return d.String()
}
