package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/oncebox/oncebox/idempotency"
)

// mostUnknown is how many steps with an unknown outcome a page shows, the oldest first.
const mostUnknown = 100

const titleKeys = "Idempotency keys"

// keysView is the data of the page of steps whose outcome is unknown.
type keysView struct {
	Tenant string
	Steps  []stepRow
	More   bool
	Notice string
}

// stepRow is one such step, with its form as the operator has filled it in.
type stepRow struct {
	idempotency.Unknown

	Outcome, Result, Reason string
	// Wrong is what is missing in the form, "" when it is first shown.
	Wrong string
}

// showKeys lists the steps of requests whose outcome an operator has to find out.
func showKeys(v *visit) error {
	view, err := readKeys(v, v.URL.Query().Get(fieldTenant))
	if err != nil {
		return err
	}
	if v.URL.Query().Get(fieldDone) != "" {
		view.Notice = "The outcome was stored. The next retry of the request continues from there."
	}
	v.still = v.access.Act && len(view.Steps) > 0 // each step has a form
	return v.show(pageKeys, titleKeys, view)
}

func readKeys(v *visit, tenant string) (*keysView, error) {
	view := &keysView{Tenant: tenant}
	steps, err := v.cfg.Idempotency.Unknown(v.Context(), v.db, tenant, mostUnknown+1)
	if err != nil {
		return nil, err
	}
	if len(steps) > mostUnknown {
		steps, view.More = steps[:mostUnknown], true
	}
	for _, u := range steps {
		view.Steps = append(view.Steps, stepRow{Unknown: u})
	}
	return view, nil
}

// resolveKey stores what an operator has found out about a step.
func resolveKey(v *visit) error {
	form := v.PostForm
	epoch, err := strconv.Atoi(form.Get("epoch"))
	if err != nil {
		return invalid(fmt.Errorf("epoch: %q is not a number", form.Get("epoch")))
	}
	micro, err := strconv.ParseInt(form.Get("begun"), 10, 64)
	if err != nil {
		return invalid(fmt.Errorf("begun: %q is not a number", form.Get("begun")))
	}
	step := idempotency.Unknown{
		// The epoch names one attempt at the step. If a retry has begun a new attempt since the page was shown, the operator's finding is about an older one,
		// and Resolve refuses it.
		Key: form.Get("key"), Tenant: form.Get(fieldTenant), Step: form.Get("step"), Epoch: epoch, BegunAt: time.UnixMicro(micro),
	}
	filled := stepRow{
		Unknown: step, Outcome: form.Get("outcome"), Result: strings.TrimSpace(form.Get("result")), Reason: strings.TrimSpace(form.Get(fieldReason)),
	}
	var outcome idempotency.Outcome
	if outcome, filled.Wrong = outcomeOf(filled.Outcome, filled.Result); filled.Wrong == "" {
		filled.Wrong = reasonProblem(filled.Reason)
	}
	if filled.Wrong != "" {
		return askAgain(v, &filled)
	}
	resolved, err := v.cfg.Idempotency.Resolve(v.Context(), v.db, step, outcome, v.by(filled.Reason))
	if err != nil {
		return err
	}
	if !resolved {
		return &problem{
			http.StatusConflict, "The outcome is known already, or a process works on the key",
			lookAgain,
		}
	}
	v.log.InfoContext(v.Context(), "oncebox: an operator entered the outcome of a step on the console", "actor", v.access.Actor,
		"tenant", step.Tenant, "key", step.Key, "step", step.Step, "outcome", filled.Outcome)
	v.redirect("keys?done=1")
	return nil
}

// askAgain shows the list again, with the form of one step as it was filled in and the text about what is missing.
func askAgain(v *visit, filled *stepRow) error {
	view, err := readKeys(v, filled.Tenant)
	if err != nil {
		return err
	}
	for n := range view.Steps {
		if s := &view.Steps[n]; s.Key == filled.Key && s.Step == filled.Step {
			filled.Unknown = s.Unknown // the stored time, and not that of the form
			*s = *filled
		}
	}
	return v.write(http.StatusUnprocessableEntity, pageKeys, v.page(titleKeys, view))
}

// outcomeOf reads from the form what the operator has found out. wrong is what is missing, "" if nothing is.
func outcomeOf(outcome, result string) (o idempotency.Outcome, wrong string) {
	switch outcome {
	case "not_done":
		return idempotency.StepNotDone(), ""
	case "done":
		if !json.Valid([]byte(result)) {
			return o, "The result is not JSON. Say what the step would have returned, a text in quotes: \"ch_42\". null, if it returns nothing."
		}
		return idempotency.StepDone(json.RawMessage(result)), ""
	default:
		return o, "Say whether the step was done."
	}
}
