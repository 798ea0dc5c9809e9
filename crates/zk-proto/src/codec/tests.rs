//! What is written is read again, whatever it is; what is read never panics, whatever it is.
