package tour

import (
	"net"
	"net/http"
	"net/netip"

	"github.com/go-chi/chi/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/console"
)

// mountConsole adds the page for operators.
func mountConsole(r chi.Router, db *bun.DB, app *oncebox.App) error {
	page, err := console.New(db, onlyHere, &console.Config{
		Outbox: app.Outbox, Inbox: app.Inbox, Idempotency: app.Idempotency, Title: service,
	})
	if err != nil {
		return err
	}
	r.Mount("/console", page)
	return nil
}

// onlyHere lets everybody on this machine do everything. That is for a program to try out, and not for a service. The
// name of the host is checked, too, because a page of another site can make its own name point to this machine.
func onlyHere(r *http.Request) (console.Access, error) {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return console.Access{}, err
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		return console.Access{}, err
	}
	asked, err := netip.ParseAddr(host)
	here := from.Addr().IsLoopback() && (host == "localhost" || err == nil && asked.IsLoopback())
	return console.Access{Actor: "you", Read: here, Act: here}, nil
}
