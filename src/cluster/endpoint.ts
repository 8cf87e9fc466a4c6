// Where the API server is and how it is spoken to. Credentials are asked for anew for each request, since tokens expire
// and CAs are rotated while the program runs.
export interface TlsParts {
  /** PEM; undefined: the CAs that Node knows. */
  readonly ca?: string | Buffer | undefined;
  /** Client certificate and key, PEM. */
  readonly cert?: string | Buffer | undefined;
  readonly key?: string | Buffer | undefined;
  /** Name that the server's certificate must have, where it is not the one of the address. */
  readonly servername?: string | undefined;
  /** False only where a person wrote so into a kubeconfig. */
  readonly rejectUnauthorized?: boolean | undefined;
}

export interface Credentials {
  /** The same object for as long as nothing changed: connections are shared by it. */
  readonly tls: TlsParts;
  /** Value of the header Authorization; undefined: none. */
  readonly authorization: string | undefined;
}

export interface Endpoint {
  /** https://host:port, perhaps with a path. */
  readonly url: string;
  credentials(): Promise<Credentials>;
  /** The server did not accept the credentials (401), or its certificate: what was remembered is to be read again. */
  distrust(): void;
}
