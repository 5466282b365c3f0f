package console

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/operator"
)

// Pages that others lead to.
const (
	pageStuck   = "stuck"
	pageDelayed = "delayed"
	pageTenants = "tenants"
)

// tokenField is the field of a form that has the token.
const tokenField = "token"

// visit is one request of an actor who was let in.
type visit struct {
	*Console
	*http.Request

	w      http.ResponseWriter
	name   string // of the page
	access Access
	now    time.Time
}

// by is the actor with a reason, for the audit.
func (v *visit) by(reason string) operator.By {
	return operator.By{Actor: v.access.Actor, Reason: reason}
}

// problem is shown to the actor: what is the matter, and what to do.
type problem struct {
	status      int
	title, text string
}

func (p *problem) Error() string { return p.title + ": " + p.text }

// invalid is the problem of a request whose parameters cannot be used.
func invalid(err error) error {
	return &problem{http.StatusBadRequest, "The request cannot be used", err.Error()}
}

// page is what the layout shows.
type page struct {
	Title   string
	Site    string
	Current string
	Nav     []link
	Actor   string
	Act     bool
	Token   string
	Refresh int // in seconds; 0: never
	Style   string
	Icon    string
	Now     time.Time
	Body    any
}

type link struct{ Name, Href, Class string }

func (v *visit) page(title string, body any) *page {
	p := &page{
		Title: title, Site: v.cfg.Title, Current: v.name, Actor: v.access.Actor, Act: v.access.Act,
		Style: v.assetHref(stylesheet), Icon: v.assetHref(icon), Now: v.now, Body: body,
	}
	for _, l := range []link{
		{"Overview", "", ""}, {"Stuck", pageStuck, ""}, {"Dead letters", "dead", ""}, {"Delayed", pageDelayed, ""}, {"Event", "event", ""},
		{"Keys", "keys", ""}, {"Tenants", pageTenants, ""}, {"Audit", "audit", ""},
	} {
		if _, found := v.routes["GET "+l.Href]; !found {
			continue
		}
		if l.Href == v.name || v.name == "letter" && l.Href == "dead" {
			l.Class = classCurrent
		}
		if l.Href == "" {
			l.Href = "./"
		}
		p.Nav = append(p.Nav, l)
	}
	if v.access.Act {
		p.Token = v.tokens.make(v.access.Actor, v.now)
	}
	return p
}

// show writes a page. It is made before its first byte is sent, so that an error does not end in the middle of it.
func (v *visit) show(name, title string, body any) error {
	return v.write(http.StatusOK, name, v.page(title, body))
}

func (v *visit) write(status int, name string, p *page) error {
	var out bytes.Buffer
	if err := v.templates[name].Execute(&out, p); err != nil {
		return fmt.Errorf("console: make the page %s: %w", name, err)
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(status)
	_, _ = v.w.Write(out.Bytes())
	return nil
}

// redirect sends the browser to a page, or to another address that is relative to this one. http.Redirect would make it absolute, with
// a path that a proxy or http.StripPrefix has changed.
func (v *visit) redirect(to string) {
	v.w.Header().Set("Location", to)
	v.w.WriteHeader(http.StatusSeeOther)
}

// refuse answers a request that is not permitted, without details.
func (v *visit) refuse(err error) {
	if errors.Is(err, errRefused) {
		http.Error(v.w, "You have no access to this page.", http.StatusForbidden)
		return
	}
	v.log.ErrorContext(v.Context(), "oncebox: the Authorizer of the console failed, the request was answered with 503", "error", err)
	http.Error(v.w, "It could not be found out who you are. The log of this process says why.", http.StatusServiceUnavailable)
}

// fail shows a problem, or that there is one and where to read about it.
func (v *visit) fail(err error) {
	p, known := errors.AsType[*problem](err)
	switch {
	case v.Context().Err() != nil && !known:
		return // nobody waits for the answer, and the error may be no more than that
	case !known:
		id := rand.Text()[:10]
		v.log.ErrorContext(v.Context(), "oncebox: the console could not answer", "page", v.name, "id", id, "error", err)
		p = unanswered(err, id)
	}
	if err := v.write(p.status, "problem", v.page(p.title, strings.TrimSpace(p.text))); err != nil {
		v.log.ErrorContext(v.Context(), "oncebox: the console could not answer", "error", err)
	}
}

// unanswered is the problem of a request that failed for a reason which is in the log under an id.
func unanswered(err error, id string) *problem {
	why := "The log of this process says why, under the id " + id + ". "
	if pgerr.IsConnectionError(err) || errors.Is(err, context.DeadlineExceeded) {
		return &problem{
			http.StatusServiceUnavailable, "The database does not answer",
			why + "Nothing can be shown before this process reaches its database again. Whether it answers elsewhere is shown there by: oncebox status",
		}
	}
	return &problem{http.StatusInternalServerError, "This could not be answered", why + "Try again when the cause is mended."}
}

// lookWithin is how long the pages may take that are looked at first, where none reads more rows when more wait. A database that has vanished does not
// say so.
const lookWithin = 15 * time.Second

// bounded is the visit with an end.
func (v *visit) bounded() (*visit, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(v.Context(), lookWithin)
	within := *v
	within.Request = v.Request.WithContext(ctx)
	return &within, cancel
}
