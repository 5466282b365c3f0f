package shop

import (
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/oncebox/oncebox/console"
)

// Variables with the users of the operators' page, as name:password, separated by commas.
const (
	operatorsVariable = "CONSOLE_OPERATORS" // may see and change everything
	readersVariable   = "CONSOLE_READERS"   // may see everything
)

// operators are the people who may use the page, with their passwords.
type operators struct {
	passwords map[string]string
	mayAct    map[string]bool
}

// operatorsFromEnv reads the variables. Without them nobody may use the page.
func operatorsFromEnv() (*operators, error) {
	o := &operators{passwords: map[string]string{}, mayAct: map[string]bool{}}
	for _, variable := range []string{readersVariable, operatorsVariable} {
		list := os.Getenv(variable)
		if list == "" {
			continue
		}
		for user := range strings.SplitSeq(list, ",") {
			name, password, found := strings.Cut(strings.TrimSpace(user), ":")
			if !found || name == "" || password == "" {
				return nil, fmt.Errorf("%s: give name:password, several with commas between them", variable)
			}
			o.passwords[name], o.mayAct[name] = password, variable == operatorsVariable
		}
	}
	return o, nil
}

// authorize is called after the password was compared.
func (o *operators) authorize(r *http.Request) (console.Access, error) {
	name, _, found := r.BasicAuth()
	return console.Access{Actor: name, Read: found, Act: found && o.mayAct[name]}, nil
}

// mountConsole adds the page for operators, if there are any.
func (s *service) mountConsole(r chi.Router) error {
	o, err := operatorsFromEnv()
	if err != nil || len(o.passwords) == 0 {
		return err
	}
	page, err := console.New(s.db, o.authorize, &console.Config{
		Outbox: s.app.Outbox, Inbox: s.app.Inbox, Idempotency: s.app.Idempotency, Title: defaultSource,
		TraceURL: os.Getenv("CONSOLE_TRACE_URL"), Secret: []byte(os.Getenv("CONSOLE_SECRET")),
	})
	if err != nil {
		return err
	}
	r.With(middleware.BasicAuth(defaultSource, o.passwords)).Mount("/console", page)
	return nil
}
