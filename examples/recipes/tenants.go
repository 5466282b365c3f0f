package recipes

import (
	"context"
	"net/http"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/httpmw/httpjson"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// Note is an aggregate of a tenant: its key has both.
type Note struct {
	event.Recorder `bun:"-"`

	bun.BaseModel `bun:"table:notes"`
	TenantID      string `bun:",pk"`
	ID            string `bun:",pk"`
	Version       int64
}

// Noted is its event. It has no tenant: the envelope has it.
type Noted struct{ ID string }

// EventType names the event on the wire.
func (Noted) EventType() string { return "note.noted" }

// AggregateType is part of the note's identity.
func (*Note) AggregateType() string { return "note" }

// AggregateID is part of the note's identity. The tenant belongs to it as well, but oncebox takes that from the context.
func (n *Note) AggregateID() string { return n.ID }

// AggregateVersion counts the events of the note.
func (n *Note) AggregateVersion() int64 { return n.Version }

// NoteRoutes serves the notes of all tenants. Each tenant has a token.
func NoteRoutes(app *oncebox.App, tokens httpmw.BearerTokens) http.Handler {
	once := httpmw.Idempotency(app.UoW, app.Idempotency, httpmw.Caller, &httpmw.IdempotencyConfig{RequireTenant: true})
	note := func(r *http.Request, _ httpjson.Nothing) (httpjson.Nothing, error) {
		return httpjson.Nothing{}, app.UoW.Do(r.Context(), func(ctx context.Context, u *uow.Unit) error {
			n := &Note{TenantID: event.TenantFrom(ctx), ID: r.PathValue("id")}
			n.Record(Noted{n.ID})
			return u.Save(ctx, n)
		})
	}
	routes := http.NewServeMux()
	routes.Handle("POST /notes/{id}", once(httpjson.Handler(http.StatusCreated, nil, note)))
	return httpmw.Authenticate(tokens.Scope)(routes)
}

// CountNotes counts the notes of each tenant.
func CountNotes(app *oncebox.App) {
	router := messaging.NewRouter(app.Registry)
	messaging.Handle(router, func(ctx context.Context, _ Noted) error {
		_, err := app.UoW.DB(ctx).NewRaw(`INSERT INTO note_counts VALUES (?, 1)
			ON CONFLICT (tenant_id) DO UPDATE SET notes = note_counts.notes + 1`, event.TenantFrom(ctx)).Exec(ctx)
		return err
	})
	app.Consume("note", "note-counts", router)
}
