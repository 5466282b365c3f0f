package serve

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/console"
)

// people may use the console, with their passwords.
type people struct {
	passwords map[string]string
	mayAct    map[string]bool
}

// people reads ConsoleOperators and ConsoleReaders. An error shows no password.
func (c *Config) people() (*people, error) {
	p := &people{passwords: map[string]string{}, mayAct: map[string]bool{}}
	var errs []error
	read := func(field string, list []string, mayAct bool) {
		for n, one := range list {
			name, password, found := strings.Cut(strings.TrimSpace(one), ":")
			_, twice := p.passwords[name]
			switch {
			case !found || name == "" || password == "":
				errs = append(errs, fmt.Errorf("serve: %s%s: entry %d: give name:password, several with commas between them", prefix, field, n+1))
			case twice:
				errs = append(errs, fmt.Errorf("serve: %s%s: %s is named twice: name everybody once", prefix, field, name))
			}
			p.passwords[name], p.mayAct[name] = password, mayAct
		}
	}
	read("CONSOLE_OPERATORS", c.ConsoleOperators, true)
	read("CONSOLE_READERS", c.ConsoleReaders, false)
	return p, errors.Join(errs...)
}

// authorize is called after the password was compared.
func (p *people) authorize(r *http.Request) (console.Access, error) {
	name, _, found := r.BasicAuth()
	return console.Access{Actor: name, Read: found, Act: found && p.mayAct[name]}, nil
}

// newConsole returns the page for operators, nil if nobody may use it.
func (p *process) newConsole(db *bun.DB, app *oncebox.App) (http.Handler, error) {
	named, err := p.cfg.people()
	if err != nil {
		return nil, err
	}
	authorize := p.service.Authorize
	switch {
	case authorize != nil && len(named.passwords) > 0:
		return nil, fmt.Errorf("serve: %sCONSOLE_OPERATORS or CONSOLE_READERS is set, but Service.Authorize says who may use the console: unset it", prefix)
	case authorize == nil && len(named.passwords) == 0:
		return nil, nil
	case authorize == nil:
		authorize = named.authorize
	}
	page, err := console.New(db, authorize, &console.Config{
		Outbox: app.Outbox, Inbox: app.Inbox, Idempotency: app.Idempotency,
		Title: p.app.UoW.Source, TraceURL: p.cfg.ConsoleTraceURL, Secret: []byte(p.cfg.ConsoleSecret),
	})
	if err != nil {
		return nil, fmt.Errorf("serve: %sCONSOLE_SECRET or CONSOLE_TRACE_URL: %w", prefix, err)
	}
	h := http.StripPrefix("/console", page)
	if p.service.Authorize == nil {
		h = middleware.BasicAuth(p.app.UoW.Source, named.passwords)(h)
	}
	return h, nil
}
