// Package console is a web page for operators. It shows what waits, which events and messages are dead letters and why, and what to do about them.
// It is an http.Handler, which you mount in a service, or in a program of its own.
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
// For every request, even for the stylesheet, the [Authorizer] is called first, and there is no Console without an Authorizer.
// A request that changes something needs [Access.Act], a token that was made for the same actor, and a browser that does not
// report that the request comes from another site. With [Config.ReadOnly] nobody can change anything.
//
// Each change has an entry in the audit, with [Access.Actor] and the reason that the form asks for, written in the same transaction.
//
// Contents of events and messages are shown as text: they are escaped, and the Content-Security-Policy of every page forbids all scripts. Lists read no
// payloads.
//
// A page loads itself again after [Config.Refresh], unless it has something to fill in. It keeps its filter and its place.
//
// The page keeps no state in its process, so any number of processes may serve it. If several serve it under one address, give all of them the
// same [Config.Secret].
//
// # Errors
//
// If something fails, the page shows the failure and what to do about it, and logs it. The text of a database error is only in the log; the page
// shows the id under which it is found there.
//
// Read first: console.go:Console.ServeHTTP, then dead.go and act.go.
package console
