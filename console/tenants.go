package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/console/internal/tenant"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox/tenants"
)

// lookAgain is what to do if another operator was faster.
const lookAgain = "Nothing was changed. Look at the list again."

// tenantsView is the data of the page of tenants.
type tenantsView struct {
	Rows   []tenant.Row
	Moved  []tenants.Group
	Notice string
	Open   operator.Action // the form that is open: to pause a tenant or to resume it, "" for none
	Chosen string          // the tenant in that form

	HasConsumers bool // the console has a page of consumers
}

// showTenants lists the tenants of the last minutes, the paused tenants, and the tenants that have lanes of their own.
func showTenants(v *visit) (err error) {
	view := &tenantsView{Chosen: v.URL.Query().Get(fieldTenant), HasConsumers: v.cfg.Inbox != nil}
	if view.Rows, err = tenant.Read(v.Context(), v.cfg.Outbox, v.now); err != nil {
		return err
	}
	if view.Moved, err = v.cfg.Outbox.Tenants().List(v.Context()); err != nil {
		return err
	}
	switch v.URL.Query().Get(fieldDone) {
	case string(operator.Pause):
		view.Notice = "The tenant is paused. What was on its way to the broker may still arrive."
	case string(operator.Resume):
		view.Notice = "The tenant is resumed. Its events leave in their order."
	}
	if v.access.Act {
		view.Open = operator.Action(v.URL.Query().Get(frame.FieldForm))
	}
	v.still = view.Open != ""
	return v.show(pageTenants, "Tenants", view)
}

// changeTenant pauses or resumes a tenant.
func changeTenant(v *visit) error {
	form := v.PostForm
	var do func(context.Context, string, operator.By) error
	switch operator.Action(form.Get(fieldAction)) {
	case operator.Pause:
		do = v.cfg.Outbox.Tenants().Pause
	case operator.Resume:
		do = v.cfg.Outbox.Tenants().Resume
	default:
		return invalid(fmt.Errorf("action: %q is neither pause nor resume", form.Get(fieldAction)))
	}
	name, reason := strings.TrimSpace(form.Get(fieldTenant)), strings.TrimSpace(form.Get(fieldReason))
	err := event.ValidateIdentifier("tenant", name)
	if name == "" {
		err = errors.New("tenant: it is empty")
	}
	if err != nil {
		return invalid(err)
	}
	if wrong := reasonProblem(reason); wrong != "" {
		return unexplained(wrong)
	}
	switch err := do(v.Context(), name, v.by(reason)); {
	case errors.Is(err, tenants.ErrPaused):
		return &problem{http.StatusConflict, "The tenant is paused already", lookAgain}
	case errors.Is(err, tenants.ErrNotPaused):
		return &problem{http.StatusConflict, "The tenant is not paused", lookAgain}
	case err != nil:
		return err
	}
	v.log.InfoContext(v.Context(), "oncebox: a tenant was paused or resumed on the console", "actor", v.access.Actor,
		"action", form.Get(fieldAction), "tenant", name)
	v.redirect(pageTenants + "?" + url.Values{fieldDone: {form.Get(fieldAction)}}.Encode())
	return nil
}
