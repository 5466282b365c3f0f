package console_test

import (
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/console"
)

// login is what the organisation has: a session, a directory, a proxy.
type login interface {
	// User returns who has logged in, and the groups of that person; "" if nobody has.
	User(r *http.Request) (name string, groups map[string]bool, err error)
}

func mountConsole(r chi.Router, db *bun.DB, app *oncebox.App, staff login, secret []byte) error {
	authorize := func(r *http.Request) (console.Access, error) {
		name, groups, err := staff.User(r)
		return console.Access{Actor: name, Read: groups["support"] || groups["operations"], Act: groups["operations"]}, err
	}
	page, err := console.New(db, authorize, &console.Config{
		Outbox: app.Outbox, Inbox: app.Inbox, Idempotency: app.Idempotency,
		Title:    "shop, production",
		TraceURL: "https://tempo.example.com/trace/{trace_id}",
		Secret:   secret, // the same in all processes that serve the page under one address
	})
	if err != nil {
		return err
	}
	r.Mount("/console", page)
	return nil
}

func Example() {
	var (
		r      chi.Router   // of the service
		db     *bun.DB      // the pool that the app has
		app    *oncebox.App // of oncebox.New
		staff  login
		secret []byte
	)
	if err := mountConsole(r, db, app, staff, secret); err != nil {
		panic(err)
	}
}
