// Package console is a web page for operators: what waits, what is dead and why, and what to do about it. It is an http.Handler to
// mount in a service, or in a program of its own.
//
//	page, err := console.New(db, authorize, &console.Config{Outbox: app.Outbox, Inbox: app.Inbox, Idempotency: app.Idempotency})
//	router.Mount("/console", page)                                // chi
//	mux.Handle("/console/", http.StripPrefix("/console", page))   // net/http
//
// Its links are relative, so it works below any prefix, also behind a proxy that changes the prefix. It needs the database and no
// broker: the processes of the service publish and handle what is replayed.
//
// # Guarantees
//
// Every request, also one for the stylesheet, is answered after the [Authorizer] was asked, and there is no Console without one.
// A request that changes something needs [Access.Act], a token that was made for the same actor, and a browser that does not
// say that it comes from another site. With [Config.ReadOnly] nothing can be changed by anybody.
//
// Each change has an entry in the audit, with [Access.Actor] and the reason that the form asks for, written in the same transaction.
//
// What events and messages bring is shown as text: it is escaped, and the Content-Security-Policy of every page forbids all scripts. A
// payload is read only when it is asked for.
//
// The page keeps nothing that decides anything: any number of processes may serve it. With several of them behind one address, give all
// of them one [Config.Secret].
//
// # Errors
//
// What fails is shown with what to do about it, and logged. An error of the database shows no more than that there was one:
// its text is in the log, under the id that the page shows.
//
// Read first: console.go:Console.ServeHTTP, then dead.go and act.go.
package console
