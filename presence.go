package oncebox

import (
	"os"
	"runtime/debug"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/internal/presence"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
)

// presenceOf returns what the list of processes says of a Run of these parts.
func presenceOf(a *App, parts []Part) *presence.Presence {
	host, _ := os.Hostname()
	is := operator.Process{ID: uuid.NewString(), Host: host, Name: presence.Name(), Service: a.cfg.UoW.Source}
	info, _ := debug.ReadBuildInfo()
	is.Version, is.Library = presence.Versions(info)
	for _, part := range parts {
		switch part {
		case Relay:
			is.Parts, is.Relay = append(is.Parts, "relay"), a.Projector.Name()
		case Consumers:
			is.Parts, is.Inbox = append(is.Parts, "consumers"), a.Inbox.Handle().Owner
		case Cleaner:
			is.Parts = append(is.Parts, "cleaner")
		}
	}
	if named, ok := a.broker.(messaging.Titled); ok {
		is.Broker = named.Title()
	}
	return &presence.Presence{Process: is, SQL: a.Outbox.Handle().Run, DB: a.db, Log: a.log}
}
